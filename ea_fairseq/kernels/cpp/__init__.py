"""The C++ sources, how they are built for a processor, and the library that they become."""
