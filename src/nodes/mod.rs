//! What a step does: agents, fan-outs, verifiers, gates, routers, subflows behind one trait.
