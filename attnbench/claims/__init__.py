"""What papers assert: its language (grammar), what it means (predicates), who is right (judge)."""
