# Chooses the GPUs to compile for: PUSHPULL_CUDA_ARCHITECTURES, or what is said there by "auto" or "all".
#
#   auto   those of the GPUs in this machine; without one, 80. Code for 80 runs on all GPUs of 8.x, and on later ones
#          the driver compiles it once more at the first start.
#   all    all GPUs that CUDA 13 supports. Those of 8.x share the code for 80; for 11.0 and for GPUs to come the driver
#          compiles that for 100 once more.
#
# Else it is a list as in CMAKE_CUDA_ARCHITECTURES. Each architecture adds about a minute and a half of a core.
set(PUSHPULL_CUDA_ARCHITECTURES "auto" CACHE STRING "GPUs to compile for: auto, all, or a list such as 80;90-real")

# Sets CMAKE_CUDA_ARCHITECTURES, and `lowest` to the lowest compute capability that the program will run on, times 10.
function(pushpull_choose_cuda_architectures lowest)
  set(chosen "${PUSHPULL_CUDA_ARCHITECTURES}")
  if(chosen STREQUAL "all")
    set(chosen 75-real 80-real 90-real 100 120-real)
  elseif(chosen STREQUAL "auto")
    execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
                    OUTPUT_VARIABLE found ERROR_QUIET RESULT_VARIABLE result)
    string(REGEX MATCHALL "[0-9]+\\.[0-9]" capabilities "${found}")
    if(result EQUAL 0 AND capabilities)
      list(REMOVE_DUPLICATES capabilities)
      string(REPLACE "." "" chosen "${capabilities}")
    else()
      set(chosen 80)
    endif()
  endif()
  set(CMAKE_CUDA_ARCHITECTURES "${chosen}" PARENT_SCOPE)
  string(REGEX REPLACE "[^0-9;]" "" numbers "${chosen}")
  list(SORT numbers COMPARE NATURAL)
  list(GET numbers 0 first)
  set(${lowest} ${first} PARENT_SCOPE)
  message(STATUS "GPU code for: ${chosen}")
endfunction()
