"""What stands beside attention in the layers of a model: feed-forwards, each token by itself.

They are no mechanisms: `attnbench models` does not list them, and no group or wildcard means them.
By their names they are measured beside mechanisms, as `attnbench model` does.

    feed_forward  one for all tokens
    experts       many, of which a router gives each token a few
"""
