"""One run on several devices: its processes, how they are started, what they cannot do, sharded weights."""
