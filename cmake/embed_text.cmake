# Writes a source file with one function that returns the text of a file.
# usage: cmake -DINPUT=TEXT -DOUTPUT=SOURCE -DHEADER=INCLUDE -DFUNCTION=NAME -P embed_text.cmake
file(READ "${INPUT}" text)
if(text MATCHES "\\)embedded\"")
  message(FATAL_ERROR "${INPUT} contains the delimiter of the string literal that it becomes: )embedded\"")
endif()
file(WRITE "${OUTPUT}" "#include \"${HEADER}\"

namespace pushpull {

absl::string_view ${FUNCTION}() {
  return R\"embedded(${text})embedded\";
}

}  // namespace pushpull
")
