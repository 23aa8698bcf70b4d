"""What Redis runs to write a piece of decided rows: all of it and its marker, or nothing.

A script is one transaction for everybody else, and its effects are one in the server's log. A row that could fail half way is looked for
before the first is written, because Redis takes nothing back.
"""

from __future__ import annotations

COMMIT = """
local staged, marker = KEYS[1], KEYS[2]
local kind, count, deletes, expire, most = ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1', tonumber(ARGV[4]), tonumber(ARGV[5])
local keep, width = tonumber(ARGV[6]), #ARGV - 6
if redis.call('EXISTS', marker) == 1 then
  redis.call('UNLINK', staged)
  return {'done', ''}
end
local items = redis.call('LRANGE', staged, 0, -1)
if #items ~= count then return {'gone', tostring(#items)} end
local step = width + 2
local seen = {}
for at = 1, count, step do
  local key = items[at]
  if kind ~= 'string' and not seen[key] then
    seen[key] = true
    local found = redis.call('TYPE', key)['ok']
    if found ~= 'none' and found ~= kind then return {'other', key .. ' is a ' .. found} end
  end
end
for at = 1, count, step do
  local key, gone = items[at], deletes and items[at + 1] == '1'
  local given, absent = {}, {}
  for i = 1, width do
    local item = items[at + 1 + i]
    if item == '-' then
      absent[#absent + 1] = ARGV[6 + i]
    else
      given[#given + 1] = ARGV[6 + i]
      given[#given + 1] = string.sub(item, 2)
    end
  end
  if kind == 'string' then
    if gone or #given == 0 then redis.call('UNLINK', key)
    elseif expire > 0 then redis.call('SET', key, given[2], 'PX', expire)
    else redis.call('SET', key, given[2]) end
  elseif kind == 'set' then
    redis.call(gone and 'SREM' or 'SADD', key, given[2])
  elseif kind == 'stream' then
    if most > 0 then redis.call('XADD', key, 'MAXLEN', '~', most, '*', unpack(given))
    else redis.call('XADD', key, '*', unpack(given)) end
  elseif gone then
    redis.call('UNLINK', key)
  else
    if #given > 0 then redis.call('HSET', key, unpack(given)) end
    if #absent > 0 then redis.call('HDEL', key, unpack(absent)) end
  end
  if expire > 0 and kind ~= 'string' and not gone then redis.call('PEXPIRE', key, expire) end
end
redis.call('SET', marker, '1', 'PX', keep)
redis.call('UNLINK', staged)
return {'written', ''}
"""
"""KEYS: the staged rows, the marker. ARGV: kind of keys, how many items are staged, whether rows say that they are deletions, how long keys
live (ms, 0 = for ever), most entries of a stream (0 = any number), how long the marker lives (ms), names of the values. An item of a row is
its key, then "1" for a deletion, then each value behind a "+", or "-" for null."""
