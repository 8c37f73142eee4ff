"""An agent that retries when it fails: classify the failure, ask the policy, restore an earlier state if needed."""
