"""Two functions of the client's, and what a user says in the two turns of a conversation about them."""

TURNS = ["Plan a day in Oslo.", "And in Bergen?"]

_ran = []


def get_weather(city: str) -> str:
    """The weather in a city."""
    _ran.append(f"get_weather {city}")
    return f"sunny in {city}"


def find_hotel(city: str) -> str:
    """A hotel in a city."""
    _ran.append(f"find_hotel {city}")
    return f"the Grand in {city}"


def taken() -> list[str]:
    """What was run since the last time. Functions that are called at once may begin in any order."""
    ran = sorted(_ran)
    _ran.clear()
    return ran
