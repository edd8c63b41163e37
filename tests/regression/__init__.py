"""What a change of the code must not change: losses, identities and documents, compared with recorded ones."""
