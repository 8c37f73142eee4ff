
import holdfast.sync as holdfast

@holdfast.durable(name="duty:greet", queue="polite")
def greet(name: str) -> str:
    if name == "nobody":
        raise ValueError("who?")
    return f"hello {name}"

import logging
logging.getLogger('holdfast').warning('the store is away')
