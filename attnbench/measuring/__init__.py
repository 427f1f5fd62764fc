"""The child: the server that forks measuring processes, and the code that runs in them."""
