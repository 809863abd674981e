"""What tests do with a browser: make it a device, ask what it asked for, take its picture."""

import base64
import json


def emulate(browser, width, scheme):
    """Makes the browser a device of so many points across, with this colour scheme and little motion."""
    phone = width < 500
    size = {"width": width, "height": 900, "deviceScaleFactor": 2 if phone else 1, "mobile": phone}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [("prefers-color-scheme", scheme), ("prefers-reduced-motion", "reduce")]
    media = {"features": [{"name": name, "value": value} for name, value in features]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)


def asked_for(browser):
    """The addresses that the browser has asked for since it was last asked this."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [one["params"]["request"]["url"] for one in messages if one["method"] == "Network.requestWillBeSent"]


def sideways(browser):
    """How far the page scrolls sideways, in points."""
    return browser.execute_script("return document.documentElement.scrollWidth - document.documentElement.clientWidth")


def shoot(browser, path, most=None, **options):
    """A picture of the page, of at most so many points down; gives its size in bytes."""
    if most:
        width = browser.execute_script("return document.documentElement.clientWidth")
        options["clip"] = {"x": 0, "y": 0, "width": width, "height": most, "scale": 1}
    shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, **options})
    path.write_bytes(base64.b64decode(shot["data"]))
    return path.stat().st_size


def try_to_add_others(browser):
    """Adds a script and a picture that the page did not bring; gives what the browser says of that."""
    browser.get_log("browser")
    browser.execute_script(
        "const one = document.createElement('script'); one.textContent = 'window.hit = 1'; document.body.append(one);"
        "const two = document.createElement('img'); two.src = 'https://x.invalid/a.png'; document.body.append(two);"
    )
    assert browser.execute_script("return window.hit") is None
    return [entry["message"] for entry in browser.get_log("browser")]
