"""One run on several devices: the group of its processes, how they are started, what they do, sharded weights."""
