"""The files that an exported folder is made of. They are copied as they are and never imported by kernelwright.

package.py        the folder's `__init__.py`: `optimized`, `explain`, `ModelNew`
operation.py      decides for each call whether the kernel or the reference runs
building.py       builds a C++ kernel on first import
python_kernel.py  calls a kernel written in Python or Triton
original.py       the reference, loaded from the user's own text when it is needed
"""
