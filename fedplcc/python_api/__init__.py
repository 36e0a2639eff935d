"""The Python interface: the same runs as the commands', with records instead of lines of text.

    federation.py     configurations as Python gives them, and clients with their data
    client.py         a client's data from arrays, torch data sets or a specification
    simulation.py     `fedplcc.simulate`
    result.py         the result of a run: tables, model, prototypes, figures
    comparison.py     `fedplcc.compare`
    torch_settings.py torch's settings of this process, kept as the caller had them

`fedplcc` exports what is public.
"""
