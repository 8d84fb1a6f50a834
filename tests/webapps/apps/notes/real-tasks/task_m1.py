import requests


def verify(server_url):
    state = requests.get(f"{server_url}/api/state").json()
    return state["added"] == ["call Ada"], f"the state is {state}"
