"""Several broker processes on one host under one supervisor; `ottla cluster` is its command line.

    restarts     one broker as the supervisor sees it: a pure state machine, events in, effects out
    layout       which brokers there are: ids, ports, racks, directories, and the arguments of each process
    state_file   what the supervisor writes down, and how a process is known again although its number may have been given away
    child        what each process runs: `ottla serve`, told by the kernel when its supervisor is gone
    introductions  whether the brokers have heard of each other
    processes    starting one and hearing from it
    supervisor   carries out the effects, and answers the commands
    control      the socket through which the commands come

A broker is an ordinary `ottla serve`: it knows nothing of its supervisor, and clients and other brokers talk to it alone.
"""
