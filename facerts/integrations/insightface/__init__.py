"""A replacement for insightface's ``FaceAnalysis`` with a quality for each face; does not need insightface.

from facerts.integrations.insightface import FaceAnalysis  # instead of: from insightface.app import FaceAnalysis

app = FaceAnalysis()
app.prepare(ctx_id=0)
for face in app.get(cv2.imread("photo.jpg")):
    print(face.bbox, face.quality, face.normed_embedding)

To keep insightface's own models, call ``add_quality`` on the faces that they find.
"""

from facerts.integrations.insightface.analysis import FaceAnalysis
from facerts.integrations.insightface.face import Face
from facerts.integrations.insightface.quality import add_quality

__all__ = ["Face", "FaceAnalysis", "add_quality"]
