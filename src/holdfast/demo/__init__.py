"""The demo: a support agent, a payment service, and real processes that are really killed. Offline, with no API key.

`agent.py` is what a user would write, and `payments.py` the outside world. A scenario (`crash`, `approve`, `fork`,
`chaos`) starts both as child processes, says what happens, and checks what is left. Nothing else imports this room.
"""
