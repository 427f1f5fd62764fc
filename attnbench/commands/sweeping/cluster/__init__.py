"""One sweep on many machines: its shards, their scheduler, and the folder that they share."""
