# PUSHPULL_STATIC: defines targets for the static libraries, under the names that the rest of the build uses. The
# programs then run on hosts where none of the libraries is installed (scripts/gpu/bundle.sh).
#
# A few libraries stay shared: libssl and libcrypto, which would add 6 MB to every program; libunwind, which glog needs,
# because libunwind.a defines _Unwind_Resume and so does libgcc_eh.a; and liblzma, which libunwind needs. The programs
# look for them in the folder ../lib, relative to the folder of the program.

# pushpull_archives(RESULT NAME...): sets RESULT to the paths of lib<NAME>.a. A missing archive is an error.
function(pushpull_archives result)
  set(paths)
  foreach(name ${ARGN})
    find_library(PUSHPULL_ARCHIVE_${name} NAMES lib${name}.a REQUIRED)
    list(APPEND paths ${PUSHPULL_ARCHIVE_${name}})
  endforeach()
  set(${result} ${paths} PARENT_SCOPE)
endfunction()

# Abseil's archives depend on one another in many ways, so they are linked as one group.
find_library(PUSHPULL_ARCHIVE_absl_base NAMES libabsl_base.a REQUIRED)
get_filename_component(archive_dir ${PUSHPULL_ARCHIVE_absl_base} DIRECTORY)
file(GLOB archives ${archive_dir}/libabsl_*.a)
list(FILTER archives EXCLUDE REGEX "test_util")
pushpull_archives(others glog gflags z)
list(APPEND archives ${others})
if(PUSHPULL_RPC)
  pushpull_archives(others grpc++ grpc gpr upb address_sorting re2 cares)
  list(APPEND archives ${others})
endif()
list(APPEND archives protobuf::libprotobuf)

add_library(pushpull_archives INTERFACE)
list(JOIN archives "," archives)
find_library(PUSHPULL_UNWIND NAMES libunwind.so REQUIRED)
target_link_libraries(pushpull_archives INTERFACE
  "$<LINK_GROUP:RESCAN,${archives}>" ${PUSHPULL_UNWIND} Threads::Threads ${CMAKE_DL_LIBS})

if(PUSHPULL_RPC)
  target_link_libraries(pushpull_archives INTERFACE OpenSSL::SSL)
endif()

foreach(name flags flags_parse flags_reflection flags_usage flat_hash_map span status statusor str_format strings
             synchronization time)
  add_library(absl::${name} INTERFACE IMPORTED)
  target_link_libraries(absl::${name} INTERFACE pushpull_archives)
endforeach()
add_library(glog::glog INTERFACE IMPORTED)
target_link_libraries(glog::glog INTERFACE pushpull_archives)

if(PUSHPULL_RPC)
  add_library(gRPC::grpc++ INTERFACE IMPORTED)
  target_link_libraries(gRPC::grpc++ INTERFACE pushpull_archives)
  find_program(PUSHPULL_GRPC_PLUGIN grpc_cpp_plugin REQUIRED)
  add_executable(gRPC::grpc_cpp_plugin IMPORTED)
  set_target_properties(gRPC::grpc_cpp_plugin PROPERTIES IMPORTED_LOCATION ${PUSHPULL_GRPC_PLUGIN})

  pushpull_archives(pugixml_archive pugixml)
  add_library(pugixml::pugixml INTERFACE IMPORTED)
  target_link_libraries(pugixml::pugixml INTERFACE ${pugixml_archive})
endif()

# Leaves out every function that a program does not use, because the size of the bundle is limited.
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-ffunction-sections;-fdata-sections>")
add_link_options(-static-libstdc++ -static-libgcc -Wl,--gc-sections)
if(MOLD_PROGRAM)
  add_link_options(-Wl,--icf=all)
endif()
# Sets DT_RPATH instead of DT_RUNPATH, because it also applies to the dependencies of the packed libraries.
add_link_options(-Wl,--disable-new-dtags)
set(CMAKE_BUILD_RPATH "$ORIGIN/../lib")
