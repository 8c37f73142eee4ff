"""The demo: a support agent, a payment service, and real processes that are really killed. Offline, with no API key.

`agent.py` is what a user would write, `payments.py` the outside world. The scenes (`scenes.py`, `chaos.py`) start both
as child processes, print what happens, and check what is left. Nothing else imports this room.
"""
