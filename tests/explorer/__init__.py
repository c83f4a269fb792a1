"""A schedule explorer: the real guard and the real SSM ledger under every interleaving and fault.

Deliveries and sweeps run as coroutines (greenlets) over one stand-in for Parameter Store. At every
call, and at the end of the work, control goes to a scheduler that decides who moves next, what goes
wrong and how time passes. A schedule is the list of these decisions, so any run can be repeated.

    world       the parameter, its versions, and the store's clock
    actors      who takes part: deliveries, sweepers, and the machine each of them runs on
    properties  what must hold in every schedule
    scheduler   one schedule from start to end
    scenarios   who meets what: each a bounded space of schedules
    search      every schedule of a scenario, or random ones by seed
    mutants     the code with one guard taken out, which the explorer must find
"""
