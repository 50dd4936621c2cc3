# PUSHPULL_SANITIZE=thread: redirects our calls of absl::Mutex to tests/testkit/tsan/mutex.cc, which explains why.
add_library(pushpull_tsan_mutex STATIC tests/testkit/tsan/mutex.cc)
set_target_properties(pushpull_tsan_mutex PROPERTIES POSITION_INDEPENDENT_CODE ON)
foreach(member 4LockEv 6UnlockEv 10ReaderLockEv 12ReaderUnlockEv 5AwaitERKNS0_9ConditionE
               16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE
               17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE D1Ev)
  add_link_options(-Wl,--wrap=_ZN4absl7debian35Mutex${member})
endforeach()
link_libraries(pushpull_tsan_mutex)
