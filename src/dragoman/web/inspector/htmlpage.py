"""placeholder"""


def session_html() -> str:
    return ""
