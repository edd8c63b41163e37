"""A look at a folder of labelled pictures before anything is trained: what the files say, and which are alike."""
