-- a comment with 1 + 1
if x == 1 then return 0 end
return 2
