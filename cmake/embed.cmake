# Writes FILES of ROOT/templates as raw string literals into OUT: attune::embedded_files().
set(text "// Generated from templates/ by cmake/embed.cmake.\n#include \"templates/family.h\"\n\n")
string(APPEND text "namespace attune {\nnamespace {\nconstexpr EmbeddedFile kFiles[] = {\n")
foreach(file IN LISTS FILES)
  file(READ ${ROOT}/templates/${file} content)
  string(APPEND text "{\"templates/${file}\", R\"attune(${content})attune\"},\n")
endforeach()
string(APPEND text "};\n}  // namespace\n\nstd::span<const EmbeddedFile> embedded_files() { return kFiles; }\n\n}  // namespace attune\n")
file(WRITE ${OUT} "${text}")
