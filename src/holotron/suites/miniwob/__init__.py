"""MiniWoB++: 125 small web tasks with a reward, played in real pages."""
