import time
say(now=time.time())
