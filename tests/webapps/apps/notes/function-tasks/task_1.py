import requests


def verify(server_url):
    state = requests.get(f"{server_url}/api/state").json()
    return "Pay the rent" in state["done"], f"the state is {state}"
