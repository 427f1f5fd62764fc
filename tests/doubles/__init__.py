"""What stands in for a machine, a server, a cluster or a reader of cards in several tests."""
