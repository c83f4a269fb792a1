"""A schedule explorer: the real guard and the real SSM ledger under every interleaving and fault.

Deliveries and sweeps run as coroutines (greenlets) over one stand-in for Parameter Store. At every
call, and at the end of the work, control goes to a scheduler that decides who moves next, what goes
wrong and how time passes. A schedule is the list of these decisions, so any run can be repeated.

    world       the parameter, its versions, and the store's time
    machines    an actor's clocks and client, and how it gives way to the scheduler
    actors      who takes part: deliveries and sweeps
    properties  what must hold in every schedule
    priors      what is found under the name
    scenarios   who meets what: each a bounded space of schedules
    service     what the store answers
    scheduler   one schedule from start to end
    search      every schedule of a scenario, or random ones by seed
    mutants     the code with one guard taken out (mutation), which the explorer must find
"""
