"""Is it right, is it fast, can I believe it?

The trusted side is the process that uses `local.LocalJudge`; it holds inputs, oracle, seed, clock and verdict, and needs no
torch. The warm `server` forks a runner for everything untrusted: `reference_side` runs the user's reference,
`candidate_side` a candidate. Both talk JSON over a socket (`wire`) and tensors through shared memory (`regions`).

    local -> session -> evaluating: screen, build, load, verify (cases), guard (questions), time (timing, baselines)

Importing this wing loads no torch.
"""
