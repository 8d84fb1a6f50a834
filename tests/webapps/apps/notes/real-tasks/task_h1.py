import requests


def verify(server_url):
    state = requests.get(f"{server_url}/api/state").json()
    return len(state["done"]) == 2, f"the state is {state}"
