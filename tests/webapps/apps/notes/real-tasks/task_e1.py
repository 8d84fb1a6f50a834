import requests


def verify(server_url):
    state = requests.get(f"{server_url}/api/state").json()
    return state["done"] == ["Buy milk"], f"the state is {state}"
