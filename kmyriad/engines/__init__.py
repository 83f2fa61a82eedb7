"""How replicas are stepped: whichever simulator an environment is in, its replicas answer to one interface."""
