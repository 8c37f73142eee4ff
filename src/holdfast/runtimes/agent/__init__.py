"""An agent that fails and tries again: failures are classified, a policy decides, rollbacks restore what was."""
