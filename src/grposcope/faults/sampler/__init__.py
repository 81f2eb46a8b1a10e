"""The policy that draws rollouts beside the one that is trained."""
