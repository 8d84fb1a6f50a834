"""The engine: a session continues, forks and goes back, and no token is computed twice."""

import asyncio

import holotron

model = holotron.load("holotron-nano", random_weights=True)


async def main() -> None:
    greedy = holotron.SamplingParams(max_tokens=8, temperature=0)
    with holotron.Engine(model, holotron.EngineConfig(slots=8, pages=128)) as engine:
        session = engine.open_session()
        first = await session.generate([1, 2, 3], greedy)
        branches = session.fork(2)
        answers = await asyncio.gather(*(branch.generate([7], greedy) for branch in branches))
        session.rollback(-1, keep_prompt=True)
        again = await session.generate(sampling=greedy)
        print("the same again:", first.token_ids == again.token_ids)
        print("branches agree:", answers[0].token_ids == answers[1].token_ids)


asyncio.run(main())
