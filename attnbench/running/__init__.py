"""The parent of all that is measured: requests, plans, processes, races, the agenda and the loop.

    request                      options and their values, and the `Request` that they make
    plan, shards                 the cases of a request, and those of one of several machines
    session, sweep               measures a plan into a journal; the loop of its visits
    agenda, order, foresee       what is left to do, what comes next, and how long it would take
    race, weighing               the visits: laps that cases take in turns, and peaks of memory
    memory, pace, suspicion      what fits together, the core's speed, and what to look at closely
    visit_costs                  seconds of a visit
    pool, process, stopping      the program that forks, a process as seen from here, its rests

It never loads torch, and no code of a mechanism runs in it.
"""
