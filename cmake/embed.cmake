# Writes FILES of ROOT/FOLDER as raw string literals into OUT: the function FUNCTION, which HEADER declares.
set(text "// Generated from ${FOLDER}/ by cmake/embed.cmake.\n#include \"${HEADER}\"\n\n")
string(APPEND text "namespace attune {\nnamespace {\nconstexpr EmbeddedFile kFiles[] = {\n")
foreach(file IN LISTS FILES)
  file(READ ${ROOT}/${FOLDER}/${file} content)
  string(APPEND text "{\"${FOLDER}/${file}\", R\"attune(${content})attune\"},\n")
endforeach()
string(APPEND text "};\n}  // namespace\n\nstd::span<const EmbeddedFile> ${FUNCTION}() { return kFiles; }\n\n}  // namespace attune\n")
file(WRITE ${OUT} "${text}")
