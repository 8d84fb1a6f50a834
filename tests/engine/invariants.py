"""What holds between any two steps of an engine, however its sessions were scheduled."""

from holotron.engine.engine_loop import EngineLoop


def check_loop(loop: EngineLoop) -> None:
    """Every slot and page is owned as often as it is counted, and every request belongs to its session."""
    sessions, memory = list(loop.sessions.values()), loop.memory
    slots = [session.slot for session in sessions if session.slot is not None]
    slots += [kept.slot for session in sessions for kept in session.checkpoints]
    used, free = memory.slots._used, memory.slots._free
    assert sorted(slots) == sorted(used), f"slots used {sorted(used)}, owned {sorted(slots)}"
    assert sorted([*free, *slots]) == list(range(1, memory.slots.size))
    counts = [0] * memory.pages.size
    for session in sessions:
        for page in session.pages:
            counts[page] += 1
    assert counts == memory.pages._references, "reference counts do not match the owners"
    assert sorted(memory.pages._free) == [page for page in range(1, memory.pages.size) if counts[page] == 0]
    for session in sessions:
        assert session.slot is None or session.offloaded is None
        assert session.computed <= len(session.tokens)
        if session.slot is not None:
            assert len(session.pages) >= memory.pages_for(session.entries)
        assert (session.request is not None) == any(request.session is session for request in loop.requests)
