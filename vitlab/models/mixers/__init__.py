"""Token mixers: what lets the tokens of a sequence see each other. One file and one YAML each.

A mixer maps (B, N, D) to (B, N, D): `mixer(x, mask=None, causal=False, context=None)`. Its module has
`build(config, *, width, heads, dropout) -> nn.Module`, called once per layer.
"""
