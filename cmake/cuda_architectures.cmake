# Chooses the GPUs to compile for: PUSHPULL_CUDA_ARCHITECTURES, or what is said there by "auto" or "all".
#
#   auto   those of the GPUs in this machine; without one, 80. Code for 80 runs on all GPUs of 8.x, and on later ones
#          the driver compiles it once more at the first start.
#   all    all GPUs that CUDA 13 supports. Those of 8.x share the code for 80; for 11.0 and for GPUs to come the driver
#          compiles that for 100 once more.
#
# Else it is a list as in CMAKE_CUDA_ARCHITECTURES. Each architecture adds about a minute and a half of a core.
set(PUSHPULL_CUDA_ARCHITECTURES "auto" CACHE STRING "GPUs to compile for: auto, all, or a list such as 80;90-real")

# Sets `architectures` to those of the GPUs of this machine for which `nvcc` can compile. One that is newer than nvcc
# gets the newest that it knows, which the driver can compile once more.
function(pushpull_find_gpus nvcc architectures)
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
                  OUTPUT_VARIABLE found ERROR_QUIET RESULT_VARIABLE result)
  string(REGEX MATCHALL "[0-9]+\\.[0-9]" capabilities "${found}")
  execute_process(COMMAND "${nvcc}" --list-gpu-arch OUTPUT_VARIABLE known ERROR_QUIET)
  string(REGEX MATCHALL "[0-9]+" known "${known}")
  set(chosen)
  if(result EQUAL 0 AND known)
    list(SORT known COMPARE NATURAL)
    list(GET known -1 newest)
    string(REPLACE "." "" capabilities "${capabilities}")
    foreach(capability IN LISTS capabilities)
      if(capability IN_LIST known)
        list(APPEND chosen ${capability})
      elseif(capability GREATER newest)
        list(APPEND chosen ${newest})
      else()
        message(WARNING "nvcc cannot compile for a GPU of this machine, of compute capability ${capability} / 10")
      endif()
    endforeach()
    list(REMOVE_DUPLICATES chosen)
  endif()
  set(${architectures} "${chosen}" PARENT_SCOPE)
endfunction()

# Sets CMAKE_CUDA_ARCHITECTURES. If the user has set it and says nothing else, it stays.
function(pushpull_choose_cuda_architectures nvcc)
  set(chosen "${PUSHPULL_CUDA_ARCHITECTURES}")
  if(chosen STREQUAL "all")
    set(chosen 75-real 80-real 90-real 100 120-real)
  elseif(chosen STREQUAL "auto" AND CMAKE_CUDA_ARCHITECTURES)
    set(chosen "${CMAKE_CUDA_ARCHITECTURES}")
  elseif(chosen STREQUAL "auto")
    pushpull_find_gpus("${nvcc}" chosen)
    if(NOT chosen)
      set(chosen 80)
    endif()
  elseif(NOT chosen MATCHES "^[0-9]+[a-z]?(-real|-virtual)?(;[0-9]+[a-z]?(-real|-virtual)?)*$")
    message(FATAL_ERROR "PUSHPULL_CUDA_ARCHITECTURES is \"${chosen}\"; expected auto, all, or a list such as 80;90-real")
  endif()
  set(CMAKE_CUDA_ARCHITECTURES "${chosen}" PARENT_SCOPE)
  message(STATUS "GPU code for: ${chosen}")
endfunction()
