"""How the layers of any nn.Module are found: what :mod:`cutwater.model.discover.layered` is made of."""
