"""Checks names: each must be valid, and mean the same file, on every system that a skill may reach."""

import json
import unicodedata

RESERVED_ID = "skill-creator"
MAX_NAME_BYTES = 255
MAX_ID_BYTES = 200

DEVICES = {"CON", "PRN", "AUX", "NUL", "CLOCK$", "CONIN$", "CONOUT$"}
DEVICES |= {port + digit for port in ("COM", "LPT") for digit in "0123456789¹²³"}


def encoded(name):
    """Returns a name's bytes on disk. In a name that is not UTF-8, surrogates stand for its other bytes."""
    return name.encode("utf-8", "surrogateescape")


def is_utf8(text):
    return not any("\ud800" <= c <= "\udfff" for c in text)


def name_fault(name):
    """Returns why a file or folder cannot have this name, as the end of a sentence, or ""."""
    if not name:
        return "is empty"
    if name in (".", ".."):
        return 'must not be "." or ".."'
    if len(encoded(name)) > MAX_NAME_BYTES:
        return f"is longer than {MAX_NAME_BYTES} bytes"
    if not is_utf8(name):
        return "is not valid UTF-8"
    for c in name:
        if unicodedata.category(c) == "Cc":
            return "holds a control character"
        if c in "/\\":
            return "holds a path separator"
        if c in '<>:"|?*':
            return 'holds one of < > : " | ? *, which Windows does not allow'
    if name[-1] in ". ":
        return "ends in a dot or a space, which Windows would drop"
    if name.split(".", 1)[0].rstrip(" ").upper() in DEVICES:
        return "is a device name that Windows reserves"
    return ""


def id_fault(name):
    """Returns why a skill's folder cannot have this name, or ""."""
    why = name_fault(name)
    if why:
        return why
    if len(encoded(unicodedata.normalize("NFC", name))) > MAX_ID_BYTES:
        return f"is longer than {MAX_ID_BYTES} bytes"
    if name[0] == ".":
        return "begins with a dot"
    if name.strip() != name:
        return "begins or ends with a space"
    if not all(shows(c) for c in name):
        return "holds a character that does not show"
    if folded(unicodedata.normalize("NFKC", name)) == RESERVED_ID:
        return f"is that of the installation's own {RESERVED_ID}; use another name"
    return ""


def shows(c):
    category = unicodedata.category(c)
    return category[0] in "LMNPS" or category == "Zs"


def folded(name):
    """Returns one spelling for all names that some system treats as equal: by case or by Unicode form."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())


def shown(text):
    """Returns an untrusted text for a message: as it is if it is harmless, else quoted and escaped."""
    if len(text) > 160:
        text = text[:160] + "…"
    if text and all(shows(c) and c not in '"\\' for c in text) and text.strip() == text:
        return text
    return json.dumps(text, ensure_ascii=not (is_utf8(text) and all(shows(c) for c in text)))
