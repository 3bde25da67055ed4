"""What happens, in which order: from an event in an editor to a recorded turn and its checkpoint.

Plain data and callbacks only; knows neither the editor's protocol nor MLX.

Invariant: the event loop never waits for the model, a disk write, the hash of a large file or a subprocess.
Invariant: turns of one conversation run one after another.
"""
