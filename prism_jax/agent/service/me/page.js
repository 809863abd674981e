// What makes the page of a person nicer; it works without.
"use strict";

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (zone) {
  for (const field of document.querySelectorAll("[data-zone]")) {
    if (field.tagName !== "SELECT" || [...field.options].some((one) => one.value === zone)) field.value = zone;
  }
  for (const word of document.querySelectorAll("[data-utc]")) word.remove();
  if (document.getElementById("main")) {
    const secure = location.protocol === "https:" ? "; Secure" : "";
    document.cookie = `zone=${zone}; Path=/; Max-Age=2592000; SameSite=Strict${secure}`;
  }
}

// The steps become a slider, which chooses among them.
const slider = document.getElementById("slider");
if (slider) {
  const range = document.getElementById("range");
  const steps = document.getElementById("steps");
  const show = () => {
    const chosen = steps.querySelector(`input[value="${range.value}"]`);
    const label = chosen.closest("label");
    const name = label.querySelector("strong").textContent;
    chosen.checked = true;
    document.getElementById("step").textContent = name;
    document.getElementById("preview").textContent = label.querySelector("small").textContent;
    range.setAttribute("aria-valuetext", name);
  };
  range.addEventListener("input", show);
  show();
  slider.hidden = false;
  steps.hidden = true;
}

// A second press of a button says nothing new.
for (const form of document.querySelectorAll("form")) {
  form.addEventListener("submit", (event) => {
    if (form.dataset.sent) event.preventDefault();
    form.dataset.sent = "1";
  });
}
window.addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
});
