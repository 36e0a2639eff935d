"""Everything that decides the last bits of a training: seeds, torch settings, the record of the machine."""
