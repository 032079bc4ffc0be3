-- For wrk: posts the bodies of a file, one a line, or gets the path when no file is named.
-- wrk does not say which connection asks, so each thread walks through the bodies from an offset of
-- its own, and its connections share the walk. wrk counts every status above 399 as an error.

local threads = 0

function setup(thread)
   thread:set("number", threads)
   threads = threads + 1
   thread:set("offset", 0)
end

local requests = {}
local at = 0

function init(args)
   local file, total = args[1], tonumber(args[2] or "1")
   wrk.headers["Content-Type"] = "application/json"
   if file then
      for line in io.lines(file) do
         requests[#requests + 1] = wrk.format("POST", nil, nil, line)
      end
      at = math.floor(#requests * number / total)
   else
      requests[1] = wrk.format("GET")
   end
end

function request()
   at = at % #requests + 1
   return requests[at]
end

function done(summary, latency, _)
   local errors = summary.errors
   local broken = errors.connect + errors.read + errors.write + errors.timeout
   local seen = {}
   for place = 1, #latency do
      seen[place] = string.format("[%d,%d]", latency(place))
   end
   io.write(string.format(
      'wrk: {"requests":%d,"microseconds":%d,"refused":%d,"broken":%d,"latencies":[%s]}\n',
      summary.requests, summary.duration, errors.status, broken, table.concat(seen, ",")))
end
